/**
 * Loaded into every test worker. When the run itself is killed, a worker would go on for as long as its test does, with
 * all its servers; so a worker whose channel to the run closes ends at once, and its servers' guardians see to the
 * rest.
 */
process.once('disconnect', () => process.exit(1))
