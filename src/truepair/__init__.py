"""truepair learns recommenders from what people did, without punishing what they have not seen yet."""
