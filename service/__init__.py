"""BERT behind one port: fill-mask, next-sentence and embeddings over HTTP."""
