-- Begin a transaction of ours: see holdfast_begin_call.
COMMIT AND NO CHAIN NO RELEASE;
SET innodb_lock_wait_timeout = 1;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
