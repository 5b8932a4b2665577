"""TEMPORARY STAND-IN by the lead, helper: overwrite freely."""
def read_levels(path): raise NotImplementedError
