-- A call that fails undoes all it did, and gives the connection back as it was (see holdfast_begin_call).
DECLARE usual_wait INT DEFAULT @@innodb_lock_wait_timeout;
DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN
  ROLLBACK AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
  RESIGNAL;
END;
