package sql_test

// The faults that these tests hold, for verify/faults.md.
//
//verify:fault Clocks | the server's wall clock an hour ahead, and back | TestClockOfTheHostSetBackHoldsNobodyForLong
//verify:fault Clocks | the server's wall clock an hour ahead, and back | TestTokensRiseWhenTheClockIsSetBack
//verify:fault MariaDB | a statement that arrives late | TestLateStatementKeepsItsSession/MariaDB
//verify:fault MariaDB | answers as the model does | TestLaws/MariaDB
//verify:fault MariaDB | answers as the model does | TestLawsOnOneConnection
//verify:fault MariaDB | answers as the model does | TestLawsUnderAwkwardSettings
//verify:fault MariaDB | connection cut before and after a step | TestAnswerLost/MariaDB
//verify:fault MariaDB | deadlock | TestDeadlockIsTriedAgain/MariaDB
//verify:fault MariaDB | deadlock | TestManyNewKeysAtOnce
//verify:fault MariaDB | deadlock | TestRenewalsNeverDeadlock
//verify:fault MariaDB | idle lines are removed while others lock | TestForgettingHoldsUpNoLock
//verify:fault MariaDB | kill -9 in mid-commit | TestKilledAtAnyMomentNothingIsTorn
//verify:fault MariaDB | kill -9 in mid-commit | TestServerRestartKeepsClaims
//verify:fault MariaDB | lock wait time-out | TestLockTimeoutIsTriedAgain/MariaDB
//verify:fault MariaDB | pool of one connection | TestLawsOnOneConnection
//verify:fault MariaDB | pool of one connection | TestOneConnectionServesWaitersAndHolders
//verify:fault MariaDB | requests of a free lock and of its release | TestRoundTrips/MariaDB
//verify:fault MariaDB | serializable as the database's default | TestLawsUnderAwkwardSettings
//verify:fault MariaDB | session killed by an administrator | TestSessionKilledByAnAdmin/MariaDB
//verify:fault MariaDB | statements ended by the server at random moments | TestStatementsAreEndedUnderLoad
//verify:fault MariaDB | statements ended by the server at random moments | TestTryThatIsEndedTakesNoHeldLock
//verify:fault MariaDB | the first waiter is killed | TestKilledWaiterDelaysNobodyBeyondItsLease/MariaDB
//verify:fault MariaDB | the holder is killed | TestKilledHolderIsGoneAfterItsLease/MariaDB
//verify:fault MariaDB | the holder is stopped past its lease | TestStoppedAnywhereNobodyIsKept/MariaDB
//verify:fault MariaDB | the holder is stopped past its lease | TestStoppedHolderLearnsThatItIsGone/MariaDB
//verify:fault MariaDB | the laws | TestLaws/MariaDB
//verify:fault MariaDB | the laws | TestLawsOnOneConnection
//verify:fault MariaDB | the store is restarted | TestServerRestartKeepsClaims/MariaDB
//verify:fault PostgreSQL behind PgBouncer | answers as the model does | TestLaws/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | answers as the model does | TestLawsUnderAwkwardSettings/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | connection cut before and after a step | TestAnswerLost/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | deadlock | TestDeadlockIsTriedAgain/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | nothing is left | TestRoundTrips/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | requests of a free lock and of its release | TestRoundTrips/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | session killed by an administrator | TestSessionKilledByAnAdmin/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | statements mixed up | TestPoolerThatMixesUpStatements
//verify:fault PostgreSQL behind PgBouncer | the first waiter is killed | TestKilledWaiterDelaysNobodyBeyondItsLease/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | the holder is killed | TestKilledHolderIsGoneAfterItsLease/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | the holder is stopped past its lease | TestStoppedHolderLearnsThatItIsGone/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | the laws | TestLaws/PgBouncer
//verify:fault PostgreSQL behind PgBouncer | the store is restarted | TestServerRestartKeepsClaims/PgBouncer
//verify:fault PostgreSQL | a statement that arrives late | TestLateStatementKeepsItsSession
//verify:fault PostgreSQL | answers as the model does | TestLaws/Postgres
//verify:fault PostgreSQL | answers as the model does | TestLawsOnOneConnection
//verify:fault PostgreSQL | answers as the model does | TestLawsUnderAwkwardSettings
//verify:fault PostgreSQL | connection cut before and after a step | TestAnswerLost
//verify:fault PostgreSQL | deadlock | TestBatchesOfNewKeysNeverDeadlock
//verify:fault PostgreSQL | deadlock | TestDeadlockIsTriedAgain
//verify:fault PostgreSQL | deadlock | TestRenewalsNeverDeadlock
//verify:fault PostgreSQL | idle lines are removed while others lock | TestForgettingHoldsUpNoLock
//verify:fault PostgreSQL | kill -9 in mid-commit | TestKilledAtAnyMomentNothingIsTorn
//verify:fault PostgreSQL | kill -9 in mid-commit | TestServerRestartKeepsClaims
//verify:fault PostgreSQL | lock wait time-out | TestLockTimeoutIsTriedAgain
//verify:fault PostgreSQL | pool of one connection | TestLawsOnOneConnection
//verify:fault PostgreSQL | pool of one connection | TestOneConnectionServesWaitersAndHolders
//verify:fault PostgreSQL | requests of a free lock and of its release | TestRoundTrips
//verify:fault PostgreSQL | serializable as the database's default | TestLawsUnderAwkwardSettings
//verify:fault PostgreSQL | serializable as the database's default | TestProcessesNeverOverlap
//verify:fault PostgreSQL | session killed by an administrator | TestListenerKilledByAnAdmin
//verify:fault PostgreSQL | session killed by an administrator | TestSessionKilledByAnAdmin
//verify:fault PostgreSQL | statements ended by the server at random moments | TestStatementsAreEndedUnderLoad
//verify:fault PostgreSQL | statements ended by the server at random moments | TestTryThatIsEndedTakesNoHeldLock
//verify:fault PostgreSQL | the first waiter is killed | TestKilledWaiterDelaysNobodyBeyondItsLease/Postgres
//verify:fault PostgreSQL | the holder is killed | TestKilledHolderIsGoneAfterItsLease/Postgres
//verify:fault PostgreSQL | the holder is stopped past its lease | TestStoppedHolderLearnsThatItIsGone/Postgres
//verify:fault PostgreSQL | the laws | TestLaws/Postgres
//verify:fault PostgreSQL | the laws | TestLawsOnOneConnection
//verify:fault PostgreSQL | the store is restarted | TestServerRestartKeepsClaims/Postgres
//verify:fault Processes | SIGSTOP between request and answer | TestStoppedAnywhereNobodyIsKept
//verify:fault Processes | a session is killed whose transaction holds a lock | TestClaimsAndTransactionsExcludeEachOther
//verify:fault Processes | a session is killed whose transaction holds a lock | TestRandomTransactionsAndLeases
//verify:fault Processes | a session is killed whose transaction holds a lock | TestTransactionsExcludeOneAnother
//verify:fault Processes | kill -9 while being handed the lock, at any moment | TestKilledAtAnyMomentNothingIsTorn
//verify:fault SQLite | answers as the model does | TestLaws/SQLite
//verify:fault SQLite | answers as the model does | TestLawsOnOneConnection
//verify:fault SQLite | answers as the model does | TestLawsWithBusyTimeout
//verify:fault SQLite | answers as the model does | TestLawsWithoutAnyPragma
//verify:fault SQLite | damaged rows | TestDamagedRowsAreAnErrorNotAPanic
//verify:fault SQLite | deadlock | n/a: one writer at a time
//verify:fault SQLite | disk full | TestFullDiskIsAnErrorAndHeals
//verify:fault SQLite | kill -9 in mid-commit | TestKilledAtAnyMomentNothingIsTorn
//verify:fault SQLite | lock wait time-out | TestLongTransactionOfTheProgramIsWaitedFor
//verify:fault SQLite | pool of one connection | TestLawsOnOneConnection
//verify:fault SQLite | pool of one connection | TestOneConnectionServesWaitersAndHolders
//verify:fault SQLite | requests of a free lock and of its release | TestRoundTrips/SQLite
//verify:fault SQLite | rows deleted | TestRowsDeletedByHandWakeTheNext
//verify:fault SQLite | serializable as the database's default | n/a: it always is
//verify:fault SQLite | session killed by an administrator | n/a: no session
//verify:fault SQLite | statements ended by the server at random moments | n/a: no server
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestClaimsThatOutliveACopy
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestCopyThatWentOnKeepsItsClaims
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestFileThatWasReplacedEndsItsClaims
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestGrantInAReplacedFileIsNotOne
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestHardLinksAreRefused
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestHolderAndWaiterOfAReplacedFile
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestLogThatStayedBehindIsRefused
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked | TestSymlinkLeadsToTheSameLocks
//verify:fault SQLite | the first waiter is killed | TestKilledWaiterDelaysNobodyBeyondItsLease/SQLite
//verify:fault SQLite | the holder is killed | TestKilledHolderIsGoneAfterItsLease/SQLite
//verify:fault SQLite | the holder is stopped past its lease | TestStoppedHolderLearnsThatItIsGone/SQLite
//verify:fault SQLite | the laws | TestLaws/SQLite
//verify:fault SQLite | the laws | TestLawsOnOneConnection
//verify:fault SQLite | the laws | TestLawsWithBusyTimeout
//verify:fault SQLite | the laws | TestLawsWithoutAnyPragma
//verify:fault SQLite | the pool opens and closes connections, and keeps old ones | TestConnectionsFromBeforeTheFirstCall
//verify:fault SQLite | the pool opens and closes connections, and keeps old ones | TestPoolThatClosesConnectionsLosesNoClaim
//verify:fault SQLite | the pool opens and closes connections, and keeps old ones | TestProgramKeepsAConnectionToTheOldFile
//verify:fault SQLite | the store is restarted | TestLeasesAreOverAfterARestartOfTheHost
//verify:fault SQLite | the store is restarted | TestRestartKeepsWhatIsNotOver
//verify:fault Security | names of tables, prefixes | TestWhatCannotWorkSaysSo
//verify:fault Security | passwords appear in no error, no report and no child process | TestUsersWhoAreNotLetIn
//verify:fault Security | passwords appear in no error, no report and no child process | TestWrongPasswordIsPermanent
//verify:fault The API, on all stores | two versions of the library on one key | TestWhatCannotWorkSaysSo
