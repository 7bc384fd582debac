"""Result tables of papers, with their averages and published rows, to which the user's models are added."""
