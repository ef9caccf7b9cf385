"""BERT's two pre-training tasks: from text to a checkpoint folder that the service serves with all three endpoints."""
