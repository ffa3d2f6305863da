"""What makes trainers of models: functions `(model, setup) -> Trainer`, which the registry names."""
