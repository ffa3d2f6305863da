"""What the ssh engine is made of: words, a look at the nodes, what was wrong with them."""
