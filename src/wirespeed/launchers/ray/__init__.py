"""What the Ray engine is made of: a driver of its own process, and the actors that hold the ranks."""
