"""The tables of the D-CPT paper made anew from a study's points, beside the paper's numbers, with a verdict each."""
