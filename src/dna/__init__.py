"""DNA: Proximal Policy Optimization with a Dual Network Architecture."""
