"""Steps of torch's optimizers in native code, with torch's own bits."""
