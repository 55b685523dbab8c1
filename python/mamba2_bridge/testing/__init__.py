"""What users test their own models with: comparisons that name what differs, and a kit of faults."""
