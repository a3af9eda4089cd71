"""Results of finished runs: statistics, tables, figures, the report."""
