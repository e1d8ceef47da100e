"""Names, labels and words for values of the model: one wording for rules, reports and screens."""
