-- It was killed. MariaDB then skips a DELETE, or a SELECT INTO with a LIMIT, and goes on without an error.
SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'Query execution was interrupted';
