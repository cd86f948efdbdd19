"""What acts: timestep encoder -> trajectory encoder -> actor and critic heads."""
