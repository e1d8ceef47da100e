"""Names and words for values of the model, shared by the reports and the dashboard."""
