"""Models, tokenizers and trainers on the C runtime, without PyTorch: what tegula.Model and its like are."""
