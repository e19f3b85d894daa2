"""What starts processes on places, asks them, notices the dead and ends them."""
