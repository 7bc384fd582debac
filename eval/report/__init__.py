"""A report that is one HTML file, and its charts. Knows nothing of evaluation."""
