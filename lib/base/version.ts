/** podnet's version, the same as in package.json (a test compares them). */
export const podnetVersion = "0.1.0";
