"""Which interfaces the libraries will choose on this node, and whether nodes reach each other."""
