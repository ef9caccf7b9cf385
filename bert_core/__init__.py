"""BERT in PyTorch: the encoder with pooler, masked-LM and next-sentence heads, on packed tokens."""
