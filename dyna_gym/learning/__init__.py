"""What the trainers share: pure functions with tests, a collector and an optimiser step."""
