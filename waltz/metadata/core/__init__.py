"""The data of every znode as frozen values, and the rules for changing them. Pure."""
