"""What a fleet remembers, as pages for a browser: `wirespeed serve`. It reads, and changes nothing."""
