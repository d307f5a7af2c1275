"""The tables of three papers made anew from a study's points, beside the paper's numbers, with a verdict each."""
