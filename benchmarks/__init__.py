"""Speed as ratios: two things measured in turn in one run, at least 30 pairs, with a 95 % interval."""
