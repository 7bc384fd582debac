"""A text of help of the options of commands that embed texts with a model."""

MODEL = "local folder of a sentence-transformers or Hugging Face model"
