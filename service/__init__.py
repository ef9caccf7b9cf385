"""BERT behind one port: fill-mask, next-sentence and embeddings over HTTP."""

__version__ = "0.1.0"
