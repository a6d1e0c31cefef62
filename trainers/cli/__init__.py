"""What all commands share: flags, errors of one line, exit statuses."""
