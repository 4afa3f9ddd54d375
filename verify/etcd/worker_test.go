package etcd_test

func worker() bool { return false }
