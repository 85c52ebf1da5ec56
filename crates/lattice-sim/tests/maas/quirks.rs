//! Each quirk of the contract by name: it shows when it is on, and the report counts it.
