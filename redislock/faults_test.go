package redislock

// The faults that these tests hold, for verify/faults.md.
//
//verify:fault Clocks | the server's wall clock an hour ahead, and back | TestCounterAheadOfTheClockStaysLonger
//verify:fault Processes | kill -9 while being handed the lock, at any moment | TestKilledProcessesOfGroups
//verify:fault Redis Cluster | answers as the model does | TestLawsOfGroups/cluster
//verify:fault Redis Cluster | nothing is left | TestFreeLockOfStoresIsTwoRequests/cluster
//verify:fault Redis Cluster | replica promoted | TestHandOverUnderLoad/cluster
//verify:fault Redis Cluster | replica promoted | TestLostMasterUnderLoad/cluster_hung
//verify:fault Redis Cluster | replica promoted | TestLostMasterUnderLoad/cluster_killed
//verify:fault Redis Cluster | requests of a free lock and of its release | TestFreeLockOfStoresIsTwoRequests/cluster
//verify:fault Redis Cluster | slot moved | TestLocksOfASlotThatMoves
//verify:fault Redis Cluster | slot moved | TestSlotMovesUnderLoad
//verify:fault Redis Cluster | the first waiter is killed | TestKilledProcessesOfGroups/cluster
//verify:fault Redis Cluster | the holder is killed | TestKilledProcessesOfGroups/cluster
//verify:fault Redis Cluster | the holder is stopped past its lease | TestStoppedHolderOfGroupsLearnsThatItIsGone/cluster
//verify:fault Redis Cluster | the laws | TestLawsOfGroups/cluster
//verify:fault Redis Cluster | the store is restarted | TestLostMasterUnderLoad/cluster_killed
//verify:fault Redis Sentinel | a stale replica is promoted | TestStaleReplicaLetsASecondHolderInAndTheFirstIsTold
//verify:fault Redis Sentinel | answers as the model does | TestLawsOfGroups/sentinel
//verify:fault Redis Sentinel | replica promoted | TestHandOverUnderLoad/sentinel
//verify:fault Redis Sentinel | replica promoted | TestLostMasterUnderLoad/sentinel_hung
//verify:fault Redis Sentinel | replica promoted | TestLostMasterUnderLoad/sentinel_killed
//verify:fault Redis Sentinel | requests of a free lock and of its release | TestFreeLockOfStoresIsTwoRequests/sentinel
//verify:fault Redis Sentinel | the first waiter is killed | TestKilledProcessesOfGroups/sentinel
//verify:fault Redis Sentinel | the holder is killed | TestKilledProcessesOfGroups/sentinel
//verify:fault Redis Sentinel | the holder is stopped past its lease | TestStoppedHolderOfGroupsLearnsThatItIsGone/sentinel
//verify:fault Redis Sentinel | the laws | TestLawsOfGroups/sentinel
//verify:fault Redis Sentinel | the store is restarted | TestLostMasterUnderLoad/sentinel_killed
//verify:fault Redis | BUSY with a script | TestServerThatRefusesEachCallHeals/BUSY
//verify:fault Redis | FLUSHALL | TestFlushAllInALoopUnderLoad
//verify:fault Redis | FLUSHALL | TestFlushedClaimsAreGoneAndStayGone
//verify:fault Redis | READONLY | TestServerThatRefusesEachCallHeals/READONLY
//verify:fault Redis | SCRIPT FLUSH in a loop | TestFlushAllInALoopUnderLoad
//verify:fault Redis | a stale replica is promoted, its link cut | TestGrantThatReplicasDoNotConfirmIsTakenBack
//verify:fault Redis | a stale replica is promoted, its link cut | TestStaleReplicaLetsASecondHolderInAndTheFirstIsTold
//verify:fault Redis | a step that was sent twice because its answer was lost | TestLeaveThatIsSentAgainLateWasDone
//verify:fault Redis | answers as the model does | TestLaws
//verify:fault Redis | eviction | TestLineThatLostAPartHeals
//verify:fault Redis | eviction | TestLineWhoseHashWasLostBeginsAnew
//verify:fault Redis | failover of Sentinel and Cluster, slots that move, under load | TestHandOverUnderLoad
//verify:fault Redis | failover of Sentinel and Cluster, slots that move, under load | TestLostMasterUnderLoad
//verify:fault Redis | failover of Sentinel and Cluster, slots that move, under load | TestSlotMovesUnderLoad
//verify:fault Redis | leases end, to the microsecond | TestGrantsFollowTheOneRule
//verify:fault Redis | leases end, to the microsecond | TestLeaseEndsToTheMicrosecond
//verify:fault Redis | kill -9 with and without persistence | TestServerIsKilledAndComesBack
//verify:fault Redis | nothing is left | TestNothingStaysButTheCounter
//verify:fault Redis | out of memory | TestLeavingAndRenewingWorkWhenMemoryIsShort
//verify:fault Redis | requests of a free lock and of its release | TestFreeLockOfStoresIsTwoRequests/single
//verify:fault Redis | the disk is full, or cannot be written | TestServerThatRefusesEachCallHeals/MISCONF
//verify:fault Redis | the first waiter is killed | TestKilledProcessesOfGroups/single
//verify:fault Redis | the holder is killed | TestKilledProcessesOfGroups/single
//verify:fault Redis | the holder is stopped past its lease | TestStoppedHolderOfGroupsLearnsThatItIsGone/single
//verify:fault Redis | the laws | TestLaws
//verify:fault Redis | the push connection is killed, or silent | TestLostPushIsMadeUpForByTheFallback
//verify:fault Redis | the push connection is killed, or silent | TestSilentSubscriptionIsFoundOut
//verify:fault Redis | the store is restarted | TestServerIsKilledAndComesBack
//verify:fault Redis | the tail of the append-only file is lost | TestTailOfTheAppendOnlyFileIsLost
//verify:fault Redis | tokens around 2^53 | TestTokensAreExactUpTo2To53
//verify:fault Security | names of tables, prefixes | TestBadOptionsAreTheAnswerToTheFirstCall
//verify:fault Security | passwords appear in no error, no report and no child process | TestWrongPasswordIsPermanentAndNotPrinted
//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar | FuzzKey
//verify:fault The API, on all stores | ten thousand waiters on a key, all cancelled | TestHandOverRunsAsManyCommandsInALongLineAsInAShortOne
//verify:fault The API, on all stores | two versions of the library on one key | TestLockOfAnotherVersionIsRefused
//verify:fault The network | half-open connections, one direction cut | TestSilentSubscriptionIsFoundOut
