"""What all estimators share: the streaming contract, validation, column scaling, merging."""
