"""Share the policy of a run: as a policy folder, on the Hugging Face Hub, in the zoo of this package."""
