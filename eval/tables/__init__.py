"""The papers' result tables: their averages, their published rows, and the user's models beside them."""
