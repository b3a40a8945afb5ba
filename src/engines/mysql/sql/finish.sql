-- After the commit: the connection is as it was before holdfast_begin_call, and waiters of other processes wake.
SET innodb_lock_wait_timeout = usual_wait;
IF @holdfast_wakes <> '' THEN
  CALL `holdfast_wake_engines`(@holdfast_wakes);
END IF;
