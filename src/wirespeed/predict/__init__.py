"""From measured runs to worlds that nobody has measured: fitted models with their uncertainty.

points.py    which measurements of the runs belong together
shapes.py    the algorithms' costs as sums of terms (latency by steps, bandwidth by bytes)
solve.py     a robust fit of one shape in log space
leftover.py  what the shape leaves over, shared by neighbouring sizes and worlds
forecast.py  shapes weighed by how they foretell what was left out; draws of the future
bounds.py    when a fit is refused
improve.py   a faster link, in the fitted terms
timeline.py  which messages a step sends, and when they leave
steps.py     training steps from forecasts of collectives
answer.py    all of it, as a record
"""
