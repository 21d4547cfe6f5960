"""One prompt and its answer: where the prompt comes from, and how the answer is written."""
