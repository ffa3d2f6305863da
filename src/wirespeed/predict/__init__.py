"""From measured runs to worlds that nobody has measured: fitted models with their uncertainty.

points.py    which measurements of the runs belong together; the algorithms' costs as sums of terms
             (latency by steps, bandwidth by bytes)
solve.py     a robust fit of one shape in log space
residual.py  what the shape leaves over, shared by neighbouring sizes and worlds; what it says of
             sizes and worlds that it was not shown
forecast.py  shapes weighed by how they foretell what was left out; draws of the future; when a fit is
             refused; a faster link, in the fitted terms
steps.py     training steps from forecasts of collectives
answer.py    all of it, as a record
"""
