/** The API client's types mention a package for websockets, whose own types podnet has no use for. */
declare module "ws";
