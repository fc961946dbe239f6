"""From a simulated car to the API: the whole line on real parts, and what happens to it when parts die."""
