"""What the DeepSpeed engine is made of: its words, its environment file, and the leash around it."""
