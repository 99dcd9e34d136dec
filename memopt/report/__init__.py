"""What a run did, for people and for machines."""
