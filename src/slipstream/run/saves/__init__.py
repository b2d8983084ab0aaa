"""Files that torch.save writes while the script goes on."""
