"""One file a strategy; each exports `build(model, setup) -> Trainer`. The registry names them."""
