-- A short code for the user of this connection.
LOWER(HEX(CRC32(SUBSTRING_INDEX(USER(), '@', 1))))
