"""What travels between stations: frozen, typed records that know no network, environment or file."""
