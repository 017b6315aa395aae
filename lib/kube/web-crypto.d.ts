import type { webcrypto } from "node:crypto";

/** The X.509 package's types name those of a browser; Node has the same ones by another name. */
declare global {
  type AlgorithmIdentifier = webcrypto.AlgorithmIdentifier;
  type Algorithm = webcrypto.Algorithm;
  type BufferSource = webcrypto.BufferSource;
  type Crypto = webcrypto.Crypto;
  type CryptoKey = webcrypto.CryptoKey;
  type CryptoKeyPair = webcrypto.CryptoKeyPair;
  type EcKeyGenParams = webcrypto.EcKeyGenParams;
  type EcKeyImportParams = webcrypto.EcKeyImportParams;
  type EcdsaParams = webcrypto.EcdsaParams;
  type KeyUsage = webcrypto.KeyUsage;
  type RsaHashedImportParams = webcrypto.RsaHashedImportParams;
}
