"""Studies: panels of arms with several seeds, planned, trained with resuming, scored and drawn in one way.

`yamame sweep` and `yamame reproduce` are its front ends; `yamame tune` trains and reports by it.
"""
